import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/**
 * A database inside Java (H2, Derby, SQLite), whichever the URL names: a row for each number, each a transaction. What a session is,
 * protocol.py says.
 */
final class Session implements NumberSession {
    private static final String PAYLOAD = "x".repeat(100);

    private final Connection connection;
    private final PreparedStatement insert;

    private Session(String url) throws SQLException {
        connection = DriverManager.getConnection(url);
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE lab (n BIGINT PRIMARY KEY, payload VARCHAR(200))");
        } catch (SQLException error) {
            // Of a table that is there already; without one the next statement cannot be prepared.
        }
        insert = connection.prepareStatement("INSERT INTO lab VALUES (?, ?)");
    }

    @Override
    public void write(long number) throws SQLException {
        insert.setLong(1, number);
        insert.setString(2, PAYLOAD);
        insert.executeUpdate();
    }

    @Override
    public void read() throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT n FROM lab")) {
            while (rows.next()) {
                System.out.println(rows.getLong(1));
            }
        }
        System.out.println("end");
    }

    public static void main(String[] arguments) throws Exception {
        NumberSession.serve(new Session(arguments[0]));
    }
}
